"""Operations as tools for agents: the MCP server over stdio and HTTP, and tools in the same process."""
