"""The laboratory's commands: evaluate, compare, train, calibrate. Only these import `ccheck.lab`."""
