"""Ways to cluster the rows of one family by how alike they are: a table of functions, none of which knows the rest.

A method is `labels(similarity, settings) -> clusters`: estimated Jaccard similarities of structure, shape (n, n),
float32, 1 on the diagonal → a label from 0 for each of the n, shape (n,). It is seeded by nothing and
need not care about scale: families that are too large reach it as samples (dvk.learn.diversity.clusters), which also
knows the method `none`: every row apart.
"""

METHODS = {
    "structure": "dvk.learn.diversity.methods.linkage:labels",
    "hdbscan": "dvk.learn.diversity.methods.density:labels",
}
