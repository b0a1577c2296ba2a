"""The laboratory's commands: evaluate, compare, mine, train, calibrate. Only these import `ccheck.lab`."""
