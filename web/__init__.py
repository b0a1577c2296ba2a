"""HTTP and HTML: the report page, and the service as pages, REST and MCP."""
