"""Other runtimes for a model: ONNX Runtime, TorchScript, TensorRT.

graph     a module as a function of tensors alone, which exporters take
backend   names, and what each can run
"""
