"""The steps of the benchmark on a GPU, a module each; `benchmarks.gpu.step_list` has their order and limits."""
