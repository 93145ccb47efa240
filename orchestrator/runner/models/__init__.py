"""The models of a recipe: identities, capabilities, answers that were given, comparers."""
