// The theme that was chosen here before, set before anything is painted. It is no module for that
// reason.
(() => {
  "use strict";
  try {
    const theme = localStorage.getItem("talf-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // A browser without storage follows the system.
  }
})();
