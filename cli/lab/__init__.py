"""The laboratory's commands: evaluate, compare, sweep, mine, train, calibrate. Only these import `ccheck.lab`."""
