"""Recipes: what one release sets for one model and GPU, one file each."""

from simulator.recipes.recipe import Recipe, recipes

__all__ = ["Recipe", "recipes"]
