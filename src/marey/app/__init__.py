"""The only wiring: the parts below joined into one service; here the service and its assembly."""
