// Applies the chosen theme before the first paint, so that a dark page does not flash in white.
"use strict";
{
  let theme = null;
  try {
    theme = localStorage.getItem("hourwheel-theme");
  } catch {
    // A browser that keeps nothing for this page follows the system.
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
}
