"""PyTorch's Kineto traces: header, links, communication columns, steps and modules."""
