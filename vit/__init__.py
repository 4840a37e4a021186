"""A Vision Transformer written from scratch, and what one needs to use, see into and teach it."""
