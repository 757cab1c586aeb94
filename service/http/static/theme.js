// The theme that the reader chose, before the page is drawn: system, light or dark.
(() => {
  const themes = ["system", "light", "dark"];
  const root = document.documentElement;
  const stored = () => {
    try { return localStorage.getItem("theme"); } catch { return null; }
  };
  const set = (theme) => {
    if (theme === "system") delete root.dataset.theme;
    else root.dataset.theme = theme;
  };
  let theme = themes.includes(stored()) ? stored() : "system";
  set(theme);
  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    if (!button) return;
    const name = () => { button.textContent = `Theme: ${theme}`; };
    button.hidden = false;
    name();
    button.addEventListener("click", () => {
      theme = themes[(themes.indexOf(theme) + 1) % themes.length];
      try { localStorage.setItem("theme", theme); } catch { /* the choice holds for this page */ }
      set(theme);
      name();
    });
  });
})();
