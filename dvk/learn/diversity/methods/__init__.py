"""Clustering methods for the rows of one family: a table of independent functions.

A method is `labels(similarity, settings) -> clusters`: estimated Jaccard similarities of structure, shape (n, n),
float32, 1 on the diagonal → a label from 0 for each of the n, shape (n,). It is seeded by nothing and
does not handle scale: families that are too large reach it as samples (dvk.learn.diversity.clusters), which also
knows the method `none`: every row apart.
"""

METHODS = {
    "structure": "dvk.learn.diversity.methods.linkage:labels",
    "hdbscan": "dvk.learn.diversity.methods.density:labels",
}
