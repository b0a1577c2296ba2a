"""The laboratory of research engineers: it measures and trains, and the product never imports it."""
