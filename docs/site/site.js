// What the theme leaves out for screen readers and keyboards: a name for the search, and boxes that can be scrolled by keys.
// It removes `tabindex` from code where no pointer hovers, so that changes of this attribute are watched, too.
function reach(box) {
  if (box.scrollWidth <= box.clientWidth) box.removeAttribute("tabindex")
  else if (box.tabIndex < 0) box.tabIndex = 0
}
const sizes = new ResizeObserver((changed) => changed.forEach(({ target }) => reach(target)))
function complete() {
  document.querySelectorAll('.md-search[role="dialog"]').forEach((search) => search.setAttribute("aria-label", "Search"))
  document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code").forEach((box) => {
    sizes.observe(box)
    reach(box)
  })
}
complete()
new MutationObserver(complete).observe(document.body, { childList: true, subtree: true, attributeFilter: ["tabindex"] })
