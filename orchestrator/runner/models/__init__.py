"""The models of a recipe: identities, given answers, comparers, and probes of their servers."""
