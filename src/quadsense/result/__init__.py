"""The result: matrix, certificate and facts; the verdict, its words, and files."""
