// The reference of the HTTP endpoints, by Swagger UI.
SwaggerUIBundle({
  url: "/openapi.json",
  domNode: document.getElementById("endpoints"),
  deepLinking: true,
  validatorUrl: null,
});
