"""What no library gives as one function, for stages to build on: networks, and the photometry of a picture."""
