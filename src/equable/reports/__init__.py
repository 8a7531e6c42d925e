"""Tables, figures and the page of a run, made from its results."""
