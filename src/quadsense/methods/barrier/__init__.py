"""The one interior-point kernel: every `Question`, by a primal-dual method."""
