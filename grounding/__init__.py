"""Inside articles: the figures, tables and passages that ground a claim."""
