"""The LaMa inpainting network and ways to run it."""
