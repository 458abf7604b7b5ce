"""The language of ``graph:`` in a flow.yaml, from text to steps: ``lexer``, ``parser``, ``ast``, ``pipes``, ``build``.

``arguments`` reads the expressions and numbers in the parentheses of a block.
"""
