"""What every room stands on: values, errors, settings, recipes and their stages."""
