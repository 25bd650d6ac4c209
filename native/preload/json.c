/* Replies of the NIC: compact JSON, as msgspec writes it. Anything else is found to lack the member asked for. */
#include "preload/preload.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

/* Returns what follows the string that begins here, or NULL. */
static const char *skip_string(const char *at)
{
    for (at++; *at != '"'; at++) {
        if (*at == '\\')
            at++;
        if (!*at)
            return NULL;
    }
    return at + 1;
}

/* Returns what follows the value that begins here, or NULL. */
static const char *skip_value(const char *at)
{
    int depth = 0;

    while (*at) {
        if (*at == '"') {
            at = skip_string(at);
            if (!at)
                return NULL;
            continue;
        }
        if (*at == '[' || *at == '{')
            depth++;
        else if ((*at == ']' || *at == '}') && depth-- == 0)
            return at;
        else if (*at == ',' && depth == 0)
            return at;
        at++;
    }
    return NULL;
}

const char *sp_member(const char *text, const char *name)
{
    const size_t size = strlen(name);
    const char *at = text;

    if (*at++ != '{')
        return NULL;
    while (*at == '"') {
        const char *key = at + 1;
        const char *value = skip_string(at);
        if (!value || *value++ != ':')
            return NULL;
        if ((size_t)(value - key) == size + 2 && !memcmp(key, name, size))
            return value;
        at = skip_value(value);
        if (!at || *at++ != ',')
            return NULL;
    }
    return NULL;
}

int64_t sp_integer(const char *value, int64_t otherwise)
{
    char *end;

    if (!value)
        return otherwise;
    const int64_t number = strtoll(value, &end, 10);
    return end == value ? otherwise : number;
}

double sp_number(const char *value)
{
    double number = 0, unit = 1;
    long exponent = 0;

    if (!value) /* strtod depends on the locale */
        return 0;
    for (; *value >= '0' && *value <= '9'; value++)
        number = number * 10 + (*value - '0');
    if (*value == '.')
        for (value++; *value >= '0' && *value <= '9'; value++)
            number += (unit /= 10) * (*value - '0');
    if (*value == 'e')
        exponent = strtol(value + 1, NULL, 10);
    for (; exponent < 0 && exponent > -40; exponent++)
        number /= 10;
    for (; exponent > 0 && exponent < 40; exponent--)
        number *= 10;
    return number;
}

const char *sp_text(const char *value, char *to, size_t space)
{
    if (!value || *value != '"')
        return NULL;
    const char *end = skip_string(value);
    if (!end)
        return NULL;
    size_t size = (size_t)(end - value) - 2;
    if (size >= space)
        size = space - 1;
    memcpy(to, value + 1, size);
    to[size] = 0;
    return end;
}

bool sp_endpoint(const char *value, sp_address *address)
{
    char text[INET_ADDRSTRLEN];

    if (!value || *value != '[')
        return false;
    value = sp_text(value + 1, text, sizeof text);
    if (!value || *value != ',' || inet_pton(AF_INET, text, &address->ip) != 1)
        return false;
    address->port = (uint16_t)sp_integer(value + 1, 0);
    return true;
}
