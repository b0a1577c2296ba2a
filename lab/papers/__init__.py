"""The tables that the packaged recipes' sources published, to set measured figures beside them."""
