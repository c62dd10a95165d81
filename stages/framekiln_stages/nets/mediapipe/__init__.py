"""MediaPipe's pose and face networks, read from task files."""
