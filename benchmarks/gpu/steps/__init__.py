"""The steps of the benchmark on a GPU, a module each; `benchmarks.gpu.runner` has their order and limits."""
