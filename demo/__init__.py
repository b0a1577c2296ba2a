"""Sample corpus."""
