/** Starts the page: language, theme, frame, and the view of the address. */

import { keyDialog } from "./components/key_dialog.js";
import { promptWith } from "./lib/auth.js";
import { chooseLanguage } from "./lib/i18n.js";
import { beginMetrics } from "./lib/metrics.js";
import { applyTheme } from "./lib/theme.js";
import { startShell } from "./shell.js";

applyTheme();
chooseLanguage();
promptWith(keyDialog);
startShell();
beginMetrics();
