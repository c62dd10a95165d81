"""CLIP and SigLIP2: towers, tokenizer, and INT8 linear layers."""
