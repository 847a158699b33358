/* Reads observations from stdin and prints an answer for each.
 *
 * A line is a time in ticks and one value per channel, separated by commas, blanks or tabs; an empty field between
 * commas, `nan` and `NA` are missing values. `? ticks` asks a forecaster for its answer at that time. */

#include "tides_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *problems[] = {"", "time goes back", "a value is not finite or too large", "a value is missing"};

static int fail(long line, const char *problem)
{
    fprintf(stderr, "line %ld: %s\n", line, problem);
    return 1;
}

static void print(int64_t t, const tides_real *out)
{
    printf("%lld", (long long)t);
    for (int k = 0; k < TIDES_OUTPUTS; k++)
        printf(TIDES_DOUBLE ? ",%.17g" : ",%.9g", (double)out[k]);
    printf("\n");
}

/* One field behind `at` into x; 1 if it was there, 0 if it was missing, -1 if it was no number. */
static int field(char **at, tides_real *x)
{
    char *end;
    *at += strspn(*at, " \t");
    if (**at == ',')
        *at += 1;
    *at += strspn(*at, " \t");
    if (**at == ',' || **at == '\n' || **at == '\r' || **at == '\0')
        return 0;
    if (strncmp(*at, "NA", 2) == 0 || strncmp(*at, "nan", 3) == 0 || strncmp(*at, "NaN", 3) == 0) {
        *at += strcspn(*at, ", \t\r\n");
        return 0;
    }
    *x = (tides_real)strtod(*at, &end);
    if (end == *at)
        return -1;
    *at = end;
    return 1;
}

int main(void)
{
    static char text[64 + 32 * TIDES_CHANNELS];
    static tides_state state;
    tides_real x[TIDES_CHANNELS], out[TIDES_OUTPUTS];
    unsigned char observed[TIDES_CHANNELS];

    tides_init(&state);
    for (long line = 1; fgets(text, sizeof text, stdin) != NULL; line++) {
        char *at = text + strspn(text, " \t"), *end;
        int asks = *at == '?', status;
        if (strchr(text, '\n') == NULL && !feof(stdin))
            return fail(line, "longer than any observation");
        if (*at == '\n' || *at == '\r' || *at == '\0')
            continue;
        errno = 0;
        int64_t t = (int64_t)strtoll(at + asks, &end, 10);
        if (errno == ERANGE)
            return fail(line, "a time is beyond 64 bits");
        if (end == at + asks || strchr(", \t\r\n", *end) == NULL)
            return fail(line, "wanted a time in ticks");
        at = end;
        if (asks) {
#if TIDES_KIND == TIDES_READOUT || TIDES_KIND == TIDES_QUERY_STEPS
            status = tides_peek(&state, t, out);
#else
            return fail(line, "this model answers observations only");
#endif
        } else {
            for (int d = 0; d < TIDES_CHANNELS; d++) {
                int found = field(&at, &x[d]);
                if (found < 0)
                    return fail(line, "wanted a number per channel");
                observed[d] = (unsigned char)found;
            }
            if (at[strspn(at, " \t\r\n")] != '\0')
                return fail(line, "found more values than channels");
            status = tides_step(&state, t, x, observed, out);
        }
        if (status != TIDES_OK)
            return fail(line, problems[status]);
        print(t, out);
    }
    return 0;
}
