"""Policy and value servers: openpi's websocket protocol, so that its client package drives them unchanged."""
