"""Questions for assistants: the API's answers as read-only tools of the Model Context Protocol."""
