/** The beginning: language, theme, the frame of the page, and the view the address names. */

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
