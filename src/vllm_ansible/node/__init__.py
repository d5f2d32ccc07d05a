"""Code that modules run on hosts: Python 3.9, standard library only, relative imports only."""
