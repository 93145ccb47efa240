"""The Python interface: recipes, plans, results and comparisons as users see them."""
