// What the theme leaves out for screen readers and keyboards: a name for the search, and tables that can be scrolled by keys.
function complete() {
  document.querySelectorAll('.md-search[role="dialog"]').forEach((search) => search.setAttribute("aria-label", "Search"))
  document.querySelectorAll(".md-typeset__scrollwrap").forEach((table) => table.setAttribute("tabindex", "0"))
}
complete()
new MutationObserver(complete).observe(document.body, { childList: true, subtree: true })
