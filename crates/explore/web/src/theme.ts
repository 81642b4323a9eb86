// Light or dark: what the visitor chose here, else what the system says.
let choice: string | null = null;
try {
  choice = localStorage.getItem("pullback-theme");
} catch { /* a page from a file may have no storage */ }
const system = matchMedia("(prefers-color-scheme: dark)");

export const isDark = (): boolean => (choice ? choice === "dark" : system.matches);

export function applyTheme(): void {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
}

export function toggleTheme(): void {
  choice = isDark() ? "light" : "dark";
  try {
    localStorage.setItem("pullback-theme", choice);
  } catch { /* then it lasts as long as the page */ }
  applyTheme();
}

system.addEventListener("change", applyTheme);
