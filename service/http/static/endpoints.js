// The reference of the HTTP endpoints, by the library that the page loads.
const place = document.getElementById("endpoints");
if (globalThis.SwaggerUIBundle)
  SwaggerUIBundle({ url: "/openapi.json", domNode: place, deepLinking: true, validatorUrl: null });
else
  Redoc.init("/openapi.json", { disableSearch: true, hideDownloadButton: true }, place);
