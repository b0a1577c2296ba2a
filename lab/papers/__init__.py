"""The tables that the packaged recipes' sources published, and the page with measured figures beside them."""
