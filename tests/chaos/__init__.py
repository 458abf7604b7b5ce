"""A short run of chaos, so that neither the platform nor the tool that tries it breaks unseen."""
