"""CLIP and SigLIP2: towers and tokenizer."""
