// The first question is on its way before the rest of the bundle is evaluated.
import { ask } from "./api";

ask("/api/start").catch(() => undefined);
