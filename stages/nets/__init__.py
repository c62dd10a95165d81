"""Networks behind plain functions, for stages to build on."""
