"""The descent on a factor behind `factored`: passes, starts, steps."""
