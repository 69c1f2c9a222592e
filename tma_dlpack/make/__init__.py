"""From a tensor to a map: the verbs, and the road that they take."""
