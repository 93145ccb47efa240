"""Verdicts and summary formulas of the judges that others use; pure, one file a harness.

An unparseable verdict is None. What a harness itself puts in its place (-1, 5, 0.0) is given only
where its convention is asked for by name. All parsers take time linear in the text.
"""
