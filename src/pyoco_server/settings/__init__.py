"""The settings of the platform: environment variables, checked once at the start."""

from pyoco_server.settings.loading import Loaded, SettingsError, SettingsWarning, load_settings
from pyoco_server.settings.model import Settings, secret_variables

__all__ = ["Loaded", "Settings", "SettingsError", "SettingsWarning", "load_settings", "secret_variables"]
